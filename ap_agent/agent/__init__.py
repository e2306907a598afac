"""The process with a network and without rights: it asks the service, verifies, stores and hands over to the limiter,
and tells the service what the limiter says of the kernel."""
