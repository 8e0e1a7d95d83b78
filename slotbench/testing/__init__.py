"""The laws that every part keeps, for the tests of packages that add parts; nothing here needs pytest."""
