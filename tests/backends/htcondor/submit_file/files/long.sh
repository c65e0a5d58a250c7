#!/bin/bash
timeout 1h python3 "$@"
status=$?
if [ $status -eq 124 ]; then exit 85; fi
exit $status
