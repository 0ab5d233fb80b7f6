package ovs

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// Numbers of OpenFlow 1.4 (the specification's section 7).
const (
	ofVersion = 5

	typeHello          = 0
	typeError          = 1
	typeFlowMod        = 14
	typeBarrierRequest = 20
	typeBarrierReply   = 21
	typeBundleControl  = 33
	typeBundleAdd      = 34

	commandAdd          = 0
	commandDeleteStrict = 4

	matchOXM        = 1
	instructionGoto = 1
	instructionDo   = 4 // apply actions
	actionSetField  = 25
	actionOutput    = 0

	anything = 0xffffffff // any port, any group, no buffer
)

// flowMod is the body of the message (without header) that a line of ApplyBundle
// stands for, or errNotNative.
func flowMod(line string) ([]byte, error) {
	verb, rest, _ := strings.Cut(line, " ")
	command := byte(commandAdd)
	switch verb {
	case "add":
	case "delete_strict":
		command = commandDeleteStrict
	default:
		return nil, errNotNative
	}
	rest, actions, _ := strings.Cut(rest, ",actions=")
	var cookie, table, priority uint64
	var match []byte
	for text := range strings.SplitSeq(rest, ",") {
		var err error
		switch name, value, _ := strings.Cut(text, "="); name {
		case "cookie":
			cookie, err = strconv.ParseUint(value, 0, 64)
		case "table":
			table, err = strconv.ParseUint(value, 0, 8)
		case "priority":
			priority, err = strconv.ParseUint(value, 0, 16)
		default:
			match, err = appendMatch(match, text)
		}
		if err != nil {
			return nil, errNotNative
		}
	}
	be := binary.BigEndian
	b := be.AppendUint64(nil, cookie)
	b = be.AppendUint64(b, 0) // cookie mask
	b = append(b, byte(table), command)
	b = be.AppendUint32(b, 0) // timeouts
	b = be.AppendUint16(b, uint16(priority))
	b = be.AppendUint32(b, anything)
	b = be.AppendUint32(b, anything)
	b = be.AppendUint32(b, anything)
	b = be.AppendUint32(b, 0) // flags, importance
	b = be.AppendUint16(b, matchOXM)
	b = be.AppendUint16(b, uint16(4+len(match)))
	b = pad(append(b, match...), 4+len(match))
	return appendInstructions(b, actions)
}

// pad fills up to a multiple of 8 what is length bytes long.
func pad(b []byte, length int) []byte { return append(b, make([]byte, (8-length%8)%8)...) }

// appendInstructions takes a list such as "set_field:0x5->reg0,goto_table:30"; no
// actions are "drop", or nothing in a deletion.
func appendInstructions(b []byte, text string) ([]byte, error) {
	if text == "drop" || text == "" {
		return b, nil
	}
	be := binary.BigEndian
	var do, then []byte
	for action := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(action, ":")
		switch name {
		case "set_field":
			value, field, _ := strings.Cut(value, "->")
			tlv, err := appendField(nil, field, value)
			if err != nil || strings.Contains(value, "/") {
				return nil, errNotNative
			}
			length := (4 + len(tlv) + 7) / 8 * 8
			do = be.AppendUint16(be.AppendUint16(do, actionSetField), uint16(length))
			do = pad(append(do, tlv...), 4+len(tlv))
		case "output":
			port, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return nil, errNotNative
			}
			do = be.AppendUint16(be.AppendUint16(do, actionOutput), 16)
			do = append(be.AppendUint32(do, uint32(port)), make([]byte, 8)...)
		case "goto_table":
			table, err := strconv.ParseUint(value, 10, 8)
			if err != nil || then != nil {
				return nil, errNotNative
			}
			then = []byte{0, instructionGoto, 0, 8, byte(table), 0, 0, 0}
		default:
			return nil, errNotNative
		}
	}
	if do != nil {
		b = be.AppendUint16(be.AppendUint16(b, instructionDo), uint16(8+len(do)))
		b = append(append(b, 0, 0, 0, 0), do...)
	}
	return append(b, then...), nil
}
