"""MOVi-A to E, as TensorFlow Datasets writes them."""
