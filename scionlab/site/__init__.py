"""The whole: root URLs, the registry of tasks, front page, search, log-in."""
