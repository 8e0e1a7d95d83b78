"""The built-in components, registered through the same entry points as third-party ones."""
