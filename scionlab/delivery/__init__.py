"""What a host fetches and how: configurations, signed tarballs, enrolment, the host API, the long poll."""
