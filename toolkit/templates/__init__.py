"""What ``multidraft new-rule`` copies: a working rule and its test, both run by the test suite."""
