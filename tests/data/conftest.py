"""Its folder is where the tests below it find the writers of files."""
