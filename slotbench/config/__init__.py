"""From a command line and YAML files to objects: parser, settings, refusals, what may be imported."""
