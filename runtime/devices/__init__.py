"""Devices that can execute a code object: the emulator today, HIP behind the same interface."""
