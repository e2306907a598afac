"""What the engine is compared with, each as the commands that its users run."""
