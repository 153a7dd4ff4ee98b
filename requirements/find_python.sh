#!/bin/sh
# Print which Python 3.11 or 3.12 to install into. The system's comes first if it has what is needed (pip, headers):
# distributions compile it with profile-guided optimization, pyenv does not, and that is a fifth of all time in Python.
known='import importlib.util, os, sys, sysconfig
headers = os.path.join(sysconfig.get_path("include"), "Python.h")
is_whole = importlib.util.find_spec("ensurepip") and os.path.exists(headers)
sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)) or sys.argv[1] == "whole" and not is_whole)'
for python in /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3; do
    "$python" -c "$known" whole 2>/dev/null && echo "$python" && exit
done
for python in python3.11 python3.12 python3; do
    "$python" -c "$known" any 2>/dev/null && echo "$python" && exit
done
