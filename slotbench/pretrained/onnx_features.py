"""Features of a network in an ONNX file, cut where its tokens are."""
