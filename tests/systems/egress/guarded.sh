# Run inside a network namespace of its own: guarded.sh PYTHON GUARD FOLDER. Prints `word value` lines.
python=$1 guard=$2 folder=$3
mount=/sys/fs/cgroup; test -d $mount/unified && mount=$mount/unified
group=$mount/cordee-test-$$
trap 'kill -9 $(cat $group/cgroup.procs) $(jobs -p) $(pgrep -P $(jobs -p | paste -sd,) 2>/dev/null) 2>/dev/null; sleep 0.5; rmdir $group' EXIT
set -e
mkdir $group
unshare -n sleep 50 & far=$!
sleep 0.2
ip link set lo up
ip link add near type veth peer name far
ip link set far netns $far
ip addr add 198.51.100.1/24 dev near
echo 1 > /proc/sys/net/ipv6/conf/near/disable_ipv6
ip link set near up
nsenter -t $far -n sh -c 'ip addr add 198.51.100.2/24 dev far; ip link set far up; ip link set lo up'
nsenter -t $far -n $python -c '
import socket, threading
server = socket.create_server(("198.51.100.2", 21007))
while True:
    connection = server.accept()[0]
    threading.Thread(target=lambda: [None for _ in iter(lambda: connection.recv(1 << 20), b"")]).start()
' >/dev/null 2>&1 &
sleep 0.4
in_job() { sh -c 'echo $$ > '$group'/cgroup.procs; exec "$@"' job $python $folder/sending.py 198.51.100.2 21007 "$@"; }
sent() { awk '/near:/{print $10}' /proc/net/dev; }
$python $guard count t7 /$(basename $group)
in_job 2000000 0 0.1
echo counted $($python $guard read t7)
in_job 200000000 0.02 0 >/dev/null 2>&1 &
sleep 0.4
$python $guard revoke t7 /$(basename $group) >/dev/null
before=$(sent); sleep 0.6; echo revoked-sent $(($(sent) - before))
echo held $($python $guard list)
before=$(sent); $python $guard restore t7 >/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; test $(sent) -gt $before && break; done  # TCP waits longer each time
echo restored-sent $(($(sent) - before))
$python $guard revoke node >/dev/null
before=$(sent); sleep 0.4; echo node-sent $(($(sent) - before))
$python $guard restore node >/dev/null
$python $guard restore t7 || true
$python $guard uncount t7
send='exec 3<>/dev/tcp/198.51.100.2/21007; while :; do head -c 65536 /dev/zero >&3; sleep 0.02; done'
bash -c 'exec -a "slurmstepd: [88.batch]" bash -c "setpriv --reuid=65534 --clear-groups bash -c \"\$0\"; true" "$0"' "$send" 2>/dev/null &
sleep 0.6
before=$(sent); sleep 0.4; echo user-sent $(($(sent) - before))
echo user-revoked $($python $guard revoke 88)
before=$(sent); sleep 0.6; echo user-revoked-sent $(($(sent) - before))
$python $guard restore 88 >/dev/null
$python $guard revoke 89 || true
echo after $($python $guard list)
