"""What all commands share: flags, output, and the devices and processes of a run."""
