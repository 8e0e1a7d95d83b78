"""Moving-MNIST, and where its digits come from."""
