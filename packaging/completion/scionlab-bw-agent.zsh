#compdef scionlab-bw-agent
# Written by packaging/completion/write.py from the command line's parser; do not edit.
local word place=''
local -a offers
case "${words[CURRENT-1]}" in
    --config|--confirm-within|--credentials|--for) _files; return ;;
esac
for word in "${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
        " run"|" once"|" show"|" usage"|" status"|" watch"|" tell"|" enrol"|" accept"|" accept-older"|" routes"|" routes plan"|" routes apply"|" routes confirm"|" routes rollback"|" routes remove"|" routes show"|" routes verify") place="$place $word" ;;
    esac
done
case "$place" in
    "") offers=(
        '--help:show this help message and exit'
        '--version:show program'\''s version number and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        'run:run as a daemon: follow the service, hand its configuration to the limiter, report the result'
        'once:run one cycle: fetch, hand over to the limiter, wait for it, report'
        'show:print the limit, the traffic and the drops of each link and direction, as reported by the limiter'
        'usage:print the recent traffic of each link and its limit'
        'status:show the status of the running agent on one screen'
        'watch:show the status and the busiest links until Ctrl-C, as top does'
        'tell:send one report of the last state of the limiter to the service, within 5 s or not at all'
        'enrol:fetch the credentials of this host with a one-time token (prompted for, or read from stdin)'
        'accept:accept the configuration that is held back because links vanished; also while the agent runs'
        'accept-older:accept the given version once, although a newer one is installed; also while the agent runs'
        'routes:policy routing with several uplinks, so that replies leave by the uplink where requests arrive'
    ) ;;
    " run") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " once") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " show") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--json:print JSON'
        '--verbose:also print packets, kinds of drops, and addresses'
    ) ;;
    " usage") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--json:print JSON'
    ) ;;
    " status") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--json:print JSON'
    ) ;;
    " watch") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " tell") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " enrol") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        '--replace:replace existing credentials'
        '--credentials:where to write them (default /etc/scionlab-bw/credentials.json)'
    ) ;;
    " accept") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " accept-older") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
    ) ;;
    " routes") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file (default /etc/scionlab-bw/agent.toml, if it exists)'
        'plan:print what `apply` would change, without changing it'
        'apply:set the rules and routes of uplinks.toml'
        'confirm:keep a change that waits for its confirmation'
        'rollback:undo a change that waits for its confirmation, now'
        'remove:remove all our rules and routes'
        'show:print uplinks with the links that use them, rules, routes and kernel parameters'
        'verify:check with interface counters whether replies leave by the uplink where requests arrive'
    ) ;;
    " routes plan") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
        '--json:print JSON'
    ) ;;
    " routes apply") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
        '--json:print JSON'
        '--confirm-within:roll back unless `routes confirm` is run, or the Coordination Service is reached, in this time'
        '--by-hand:only `routes confirm` confirms'
        '--boot:set the last confirmed routes, without uplinks that are not ready'
    ) ;;
    " routes confirm") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
    ) ;;
    " routes rollback") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
    ) ;;
    " routes remove") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
        '--json:print JSON'
        '--confirm-within:roll back unless `routes confirm` is run, or the Coordination Service is reached, in this time'
        '--by-hand:only `routes confirm` confirms'
    ) ;;
    " routes show") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
        '--json:print JSON'
    ) ;;
    " routes verify") offers=(
        '--help:show this help message and exit'
        '--config:the configuration file'
        '--json:print JSON'
        '--for:how long to count (default 10s)'
    ) ;;
esac
_describe scionlab-bw-agent offers || _files
