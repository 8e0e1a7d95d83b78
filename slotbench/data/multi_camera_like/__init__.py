"""Dynamic scenes that several posed cameras see at the same instants."""
