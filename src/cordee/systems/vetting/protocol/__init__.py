"""The vetting protocol: a YAML document into checks, groups, rules and conditions."""
