"""The process without rights: it asks the service, checks and hands over, and tells what the limiter says."""
