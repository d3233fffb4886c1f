# The first thing that runs in a node's fresh namespaces; `pause` takes its place as their process 1.
# A bridge without ports carries the node's address. The route for services only has to exist: the
# kernel looks one up before kube-proxy's rules rewrite the destination. No route leads out.
ip link set lo up
ip link add node0 type bridge
ip address add "$NODE_IP/24" dev node0
ip link set node0 up
ip route add "$SERVICE_RANGE" dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
echo "$NODE_NAME" >/proc/sys/kernel/hostname

# Folders that kubelet, containerd and CNI plugins insist on become this cluster's own. Shared
# propagation is for pods that mount for others; the host's mounts are cut off already.
mount --make-rshared /
mount -t tmpfs -o mode=755 node-run /run
mkdir -p /run/lock /run/netns
for folder in /var/lib/kubelet /var/lib/cni /var/log; do
    mkdir -p "$folder" "$STATE$folder"
    mount --bind "$STATE$folder" "$folder"
done
touch "$STATE/furnished"
exec "$PAUSE"
