"""What the tests of eager devices share."""

SIM = "sim:0"
