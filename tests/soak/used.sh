# On one host, while each has a container "shared" on the network of that name: all that a network can have is made.
grapevine service create all --network shared --port 8080:80 >/dev/null
grapevine service expose all 4430:8080 >/dev/null
grapevine egress create soaked --network shared --address 192.0.2.250 >/dev/null
grapevine egress create labelled --network shared --label role=web --address 192.0.2.251 >/dev/null
grapevine client add soaked --network shared >/dev/null
grapevine network join base shared >/dev/null
grapevine policy apply -f - >/dev/null <<'YAML'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: soaked, namespace: shared}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0}}]}]
YAML
