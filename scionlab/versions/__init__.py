"""The versions of a host's configuration: what raises H and L, the generation G, which documents were issued."""
