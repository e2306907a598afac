"""What the operators of the service look at: health, metrics, and for how long rows are kept."""
