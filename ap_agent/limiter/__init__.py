"""The process with rights and without a network: it makes the kernel agree with the signed document."""
