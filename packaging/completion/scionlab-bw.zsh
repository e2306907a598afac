#compdef scionlab-bw
# Written by packaging/completion/write.py from the command line's parser; do not edit.
local word place=''
local -a offers
case "${words[CURRENT-1]}" in
    --at|--bind|--cycles|--email|--end|--for|--from|--half-period|--high|--id|--last|--limit|--limits|--low|--set|--start|--state|--step|--steps|--test|--timeout|--to|--traceroute|--until) _files; return ;;
esac
for word in "${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
        " login"|" logout"|" ases"|" rename"|" links"|" show"|" set"|" set-all"|" profile"|" profile constant"|" profile outage"|" profile stair"|" profile square"|" timed"|" cancel"|" usage"|" path"|" paths"|" history"|" wait"|" watch"|" watch-load"|" test") place="$place $word" ;;
    esac
done
case "$place" in
    "") offers=(
        '--help:show this help message and exit'
        '--version:show program'\''s version number and exit'
        'login:log in and store an API token'
        'logout:revoke and delete the stored token'
        'ases:list your ASes'
        'rename:change the label of an AS'
        'links:list your Links'
        'show:show a Link'
        'set:set the limit of a Link, permanently or temporarily'
        'set-all:set one limit for all Links of an AS'
        'profile:set a temporary limit with a profile'
        'timed:list the temporary limits of a Link'
        'cancel:cancel the running temporary limit'
        'usage:show the usage of a Link'
        'path:show the limits along SCION paths'
        'paths:show what the Links of an AS carry together'
        'history:show the history of a Link'
        'wait:wait until the limit is enforced'
        'watch:print a line for every change of the state'
        'watch-load:find out whether a Link slows your traffic'
        'test:send over a Link from this host and back'
    ) ;;
    " login") offers=(
        '--help:show this help message and exit'
        '--email:email address (default: prompt)'
        '--token:prompt for a token from your profile page instead of a password'
    ) ;;
    " logout") offers=(
        '--help:show this help message and exit'
    ) ;;
    " ases") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
    ) ;;
    " rename") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
    ) ;;
    " links") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--state:only Links in this state: failed, no_report, waiting, delivered, observed, clamped, blocked, enforced, inactive'
    ) ;;
    " show") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
    ) ;;
    " set") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--to:limit to the user AS'
        '--from:limit from the user AS'
        '--active:'
        '--inactive:'
        '--for:duration; then the regular limit is restored'
        '--until:end; then the regular limit is restored'
        '--at:start (default: now)'
    ) ;;
    " set-all") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
    ) ;;
    " profile") offers=(
        '--help:show this help message and exit'
        'constant:constant limit'
        'outage:nothing passes'
        'stair:equal steps from one limit to another'
        'square:two limits in turn'
    ) ;;
    " profile constant") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--limits:to the user AS / from it'
        '--for:duration; then the regular limit is restored'
        '--until:end; then the regular limit is restored'
        '--at:start (default: now)'
    ) ;;
    " profile outage") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--for:duration; then the regular limit is restored'
        '--until:end; then the regular limit is restored'
        '--at:start (default: now)'
    ) ;;
    " profile stair") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--start:to the user AS / from it'
        '--end:to the user AS / from it'
        '--at:start (default: now)'
        '--steps:'
        '--step:duration of each step'
    ) ;;
    " profile square") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--low:to the user AS / from it'
        '--high:to the user AS / from it'
        '--at:start (default: now)'
        '--half-period:duration of each half'
        '--cycles:'
    ) ;;
    " timed") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--all:include ended ones'
    ) ;;
    " cancel") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--id:cancel this one'
        '--all:cancel scheduled ones too'
    ) ;;
    " usage") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--last:period until now (default 1h)'
        '--step:resolution (default: depends on the period)'
        '--csv:print CSV'
    ) ;;
    " path") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--traceroute:output of `scion traceroute` along one of the paths'
        '--test:watch or test your own Links along the path, one after the other (watch, quick, …)'
        '--for:of each watch: 5s to 10m (default 60s)'
    ) ;;
    " paths") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
    ) ;;
    " history") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--limit:maximum number of entries (default 20)'
    ) ;;
    " wait") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--timeout:maximum time to wait (default 60s)'
    ) ;;
    " watch") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--once:print only the first line'
    ) ;;
    " watch-load") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--for:5s to 10m (default 60s)'
        '--at:start (default: now)'
    ) ;;
    " test") offers=(
        '--help:show this help message and exit'
        '--json:print the JSON of the service'
        '--set:'
        '--at:start (default: now)'
        '--id:run this end of a test that was scheduled on the page'
        '--bind:address to send from (default: chosen by the route)'
        '--all-links:test all Links of an AS, each alone, then together (LINK is the AS)'
    ) ;;
esac
_describe scionlab-bw offers || _files
