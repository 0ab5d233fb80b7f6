# before|after the network goes; alone: whether all that it has is removed before it
when=$1 alone=$2
if [ "$when" = before ]; then grapevine network isolate shared >/dev/null; fi
if [ "$when $alone" = "before true" ]; then
  grapevine service unexpose all >/dev/null
  grapevine service remove all >/dev/null
fi
# A service goes with its network; these do not.
if [ "$when $alone" = "before true" ] || [ "$when $alone" = "after false" ]; then
  grapevine egress remove soaked >/dev/null
  grapevine egress remove labelled >/dev/null
  grapevine client remove soaked >/dev/null
  grapevine policy delete netpol shared/soaked >/dev/null
fi
