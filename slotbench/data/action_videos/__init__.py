"""Videos of an agent with its actions: the sets of TECO (DMLab, Minecraft, Habitat), and Memory Maze."""
