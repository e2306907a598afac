#compdef scionlab-bw-limiter
# Written by packaging/completion/write.py from the command line's parser; do not edit.
local word place=''
local -a offers
case "${words[CURRENT-1]}" in
    --config|--link-info|--reason) _files; return ;;
esac
for word in "${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
        " run"|" plan"|" once"|" show"|" reset"|" selftest") place="$place $word" ;;
    esac
done
case "$place" in
    "") offers=(
        '--help:show this help message and exit'
        '--version:show program'\''s version number and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        'run:run as a daemon: enforce the last accepted document, then follow the agent'
        'plan:print what `once` would change, without changing it'
        'once:enforce the last document of the agent once; with --link-info FILE enforce that file, without an agent'
        'show:print the limit, the traffic and the drops of each link and direction'
        'reset:remove all limits from the kernel; stored documents are kept'
        'selftest:test in temporary network namespaces whether this kernel enforces limits; does not touch this host'
    ) ;;
    " run") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " plan") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--link-info:read the links from this file'
        '--json:print JSON'
        '--verbose:also print each operation and each unchanged link'
    ) ;;
    " once") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--link-info:read the links from this file'
        '--json:print JSON'
        '--verbose:also print each operation and each unchanged link'
    ) ;;
    " show") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--json:print JSON'
        '--verbose:also print packets, kinds of drops, and addresses'
    ) ;;
    " reset") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--verbose:also print each operation and each unchanged link'
        '--reason:the reason, reported to the service'
    ) ;;
    " selftest") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--json:print JSON'
    ) ;;
esac
_describe scionlab-bw-limiter offers || _files
