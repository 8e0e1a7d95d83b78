"""The configuration of a run: command line and YAML files, their checks, the parser, and the objects it builds."""
