# host round networks octet image
host=$1 round=$2 networks=$3 octet=$4 image=$5
made() { docker network create -d grapevine --ipam-driver grapevine "$@" >/dev/null; }
# In the cluster's range another host's network of a moment may be in the way.
among() { for _ in $(seq 20); do made "$@" 2>/dev/null && return; sleep 0.5; done; made "$@"; }
for i in $(seq "$networks"); do
  n=soak-$host-$i
  case $((i % 11)) in
  0) made "$n" ;;
  1) among --subnet "10.131.$octet.0/24" "$n" ;;
  2) made --subnet "100.$((64 + octet)).$((round % 256)).0/24" "$n" ;; # outside, another one each round
  3) made --ipv6 "$n" ;;
  4) made --internal "$n" ;;
  5) made -o hostsubnetlength=6 "$n" ;;
  6) among --subnet "10.130.$octet.0/28" --ip-range "10.130.$octet.8/29" "$n" ;;
  7) made -o encrypted -o egress=50mbit "$n" ;;
  8) made -o vnid=0 "$n" ;;
  9) made -o isolate=true "$n" ;;
  10) made -o multicast=on "$n" ;;
  esac
  if [ $((i % 2)) = 0 ]; then
    docker run -d --name "$n" --network "$n" --network-alias "a-$i" -p "$((8000 + i)):80" -p 53:53/udp \
      -l "grapevine.from=base:80, 192.0.2.0/24" -l "grapevine.to=base, $n.example.com:443" -l grapevine.open=true -l "role=$n" "$image" >/dev/null
    for again in 1 2 3 4; do # under another name each time
      docker network connect --alias "b-$i-$round-$again" base "$n"
      echo endpoint
      if [ "$again" != 4 ]; then docker network disconnect base "$n"; fi
    done
    docker rm -f "$n" >/dev/null
    echo container
  fi
  docker network rm "$n" >/dev/null
done
