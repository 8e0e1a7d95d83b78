"""The built-in components, registered through the same entry points as a stranger's."""
