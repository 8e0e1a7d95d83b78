"""slotbench: one bench for slot-based and object-centric video models.

Importing the package imports neither torch nor lightning; `slotbench.registry` lists and loads components,
`slotbench.interfaces` says what they are.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
