#compdef mpget
# Written by packaging/completion/write.py from the command line's parser; do not edit.
local word place=''
local -a offers
case "${words[CURRENT-1]}" in
    --max-paths|--metalink|--min-weight|--output|--path|--slot|-o) _files; return ;;
esac
case "$place" in
    "") offers=(
        '--help:show this help message and exit'
        '--version:show program'\''s version number and exit'
        '--output:default: the name in the Metalink or the URL'
        '--path:one path; give several'
        '--metalink:mirrors, size and hashes of the file (RFC 5854)'
        '--max-paths:paths at work at a time (default 8)'
        '--min-weight:paths below this percentage of the best one are paused, and probed again (default 20)'
        '--slot:how often paths are compared (default 2s)'
        '--json:print what each path delivered, and when'
        '--resume:continue an earlier download, if there is one'
    ) ;;
esac
_describe mpget offers || _files
