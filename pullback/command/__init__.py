"""What the commands of the command line do that are more than a few lines."""
