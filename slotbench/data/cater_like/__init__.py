"""CATERLike, a simulator in the manner of CATER: where is the snitch, under which cone."""
