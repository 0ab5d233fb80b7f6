package pipeline

// The priorities of vnid-check.
const (
	vnidCheckFrom0 = 200 // from VNID 0, or from a network that reaches all
	vnidCheckTo0   = 190 // to VNID 0, or to such a network
	vnidCheckRealm = 100 // within a network, or networks that are one
)

// checkVNIDs lets a packet on if both ends are of one network, or of networks that are one, or one of them
// is privileged. Of the source there is the VNID, of the destination its realm's number: so a network has one flow
// here, however many it is one with.
func checkVNIDs(c *compiler) {
	next := goTo(VNIDCheck.next())
	c.add(VNIDCheck, vnidCheckFrom0, vnidObject(0), match{}.reg(regSrcVNID, 0), next)
	c.add(VNIDCheck, vnidCheckTo0, vnidObject(0), match{}.reg(regDstVNID, 0), next)
	let := func(vnid uint32, r Realm) {
		if vnid != 0 {
			priority, m := sameRealm(vnid, r)
			c.add(VNIDCheck, priority, vnidObject(vnid), m, next)
		}
	}
	for _, s := range c.in.Subnets {
		let(s.VNID, s.Realm)
	}
	for _, p := range c.in.Ports {
		let(p.VNID, p.Realm)
	}
	c.drop(VNIDCheck, otherwise, DropOtherNetwork, match{})
}

// sameRealm is the flow for what a VNID that is not 0 sends: to its realm, or everywhere.
func sameRealm(vnid uint32, r Realm) (priority int, m match) {
	if to := r.Number(vnid); to != 0 {
		return vnidCheckRealm, match{}.reg(regSrcVNID, vnid).reg(regDstVNID, to)
	}
	return vnidCheckFrom0, match{}.reg(regSrcVNID, vnid)
}
