#!/usr/bin/env bash
# GoQueue in five minutes, against a broker that this script starts and removes again:
#   examples/tour.sh            with `goqueue` on the PATH, or GOQUEUE="python -m goqueue" examples/tour.sh
set -euo pipefail

read -r -a goqueue <<<"${GOQUEUE:-goqueue}"
python=${PYTHON:-python3}
home=$(mktemp -d)
broker=""

finish() {
    if [ -n "$broker" ]; then kill -9 "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; fi
    rm -rf "$home"
}
trap finish EXIT

step() { printf '\n== %s\n' "$*"; }
show() { printf '$ goqueue %s\n' "$*"; "${goqueue[@]}" "$@"; }
field() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$home/addresses" "$1"; }

start() {
    # Port 0 picks free ports; the one line of JSON says which, once the broker takes requests.
    rm -f "$home/addresses"
    mkfifo "$home/ready"
    "${goqueue[@]}" serve --data "$home/data" --http 127.0.0.1:0 --wire 127.0.0.1:0 --print-addresses \
        >"$home/ready" 2>>"$home/log" &
    broker=$!
    if ! head -n 1 "$home/ready" >"$home/addresses" || [ ! -s "$home/addresses" ]; then cat "$home/log" >&2; exit 1; fi
    rm "$home/ready"
    GOQUEUE_ADDRESS=$(field wire)
    HTTP=$(field http)
    export GOQUEUE_ADDRESS HTTP
    echo "wire $GOQUEUE_ADDRESS, http $HTTP"
}

http() {  # METHOD PATH [BODY]
    "$python" - "$@" <<'PYTHON'
import os, sys, urllib.request
method, path, *body = sys.argv[1:]
data = body[0].encode() if body else None
request = urllib.request.Request(os.environ["HTTP"] + path, data, {"Content-Type": "application/json"}, method=method)
print(urllib.request.urlopen(request).read().decode())
PYTHON
}

step "Start a broker"
start

step "Create a topic"
show topic create orders --partitions 2

step "Produce from the command line"
show produce orders "first order" --key customer-1 --header kind=created
seq 1 1000 | show produce orders

step "Publish and read over HTTP"
http POST /topics/orders/messages '{"messages": [{"key": "customer-2", "value": {"id": 2}}]}'
http GET "/topics/orders/partitions/0/messages?offset=0&limit=1"

step "Consume"
show consume orders -n 3 --format '{partition}:{offset} {key} {value}'

step "Look at the topic and change it"
show topic alter orders --config retention_ms=3600000
show topic describe orders

step "Restart the broker in order: everything is still there"
kill -TERM "$broker"; wait "$broker"; broker=""
start
before=$("${goqueue[@]}" consume orders | wc -l)
echo "$before messages"

step "Publish once more, kill -9, start again: what was acknowledged is still there"
show produce orders "the last word"
kill -9 "$broker"; wait "$broker" 2>/dev/null || true; broker=""
start
after=$("${goqueue[@]}" consume orders | wc -l)
echo "$after messages"
[ "$after" -eq $((before + 1)) ]

step "Done"
show topic delete orders --yes
