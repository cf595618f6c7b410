"""A second, slow implementation of the machine: plain Python, one lane at a time, written from the ISA
facts."""
