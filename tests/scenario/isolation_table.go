package scenario

import (
	"strings"
)

// Isolation says who reaches whom where grapevine is on either side, as the table of
// docs/use/isolation.md does: yes, by its address and by published ports; address,
// published: by one of them only; no.
var Isolation = table(`
| from \ to          | outside | host | bridge    | internal bridge | Swarm overlay | macvlan | grapevine | internal grapevine | global grapevine |
|---|---|---|---|---|---|---|---|---|---|
| outside            | -       | -    | -         | -               | -             | -       | published | no                 | published        |
| host               | -       | -    | -         | -               | -             | -       | yes       | address            | yes              |
| bridge             | -       | -    | -         | -               | -             | -       | published | no                 | published        |
| internal bridge    | -       | -    | -         | -               | -             | -       | no        | no                 | no               |
| Swarm overlay      | -       | -    | -         | -               | -             | -       | published | no                 | published        |
| macvlan            | -       | -    | -         | -               | -             | -       | no        | no                 | no               |
| grapevine          | yes     | yes  | published | no              | published     | no      | published | no                 | yes              |
| internal grapevine | no      | no   | no        | no              | no            | no      | no        | -                  | address          |
| global grapevine   | yes     | yes  | published | no              | published     | no      | yes       | address            | -                |
`)

// IsolationTable is cells by the kinds of who asks and who is asked.
type IsolationTable struct {
	Text  string
	cells map[[2]string]string
}

func table(text string) IsolationTable {
	t := IsolationTable{strings.TrimSpace(text), map[[2]string]string{}}
	var heads []string
	for n, line := range strings.Split(t.Text, "\n") {
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		switch n {
		case 0:
			heads = row
		case 1:
		default:
			for i, cell := range row[1:] {
				t.cells[[2]string{row[0], heads[i+1]}] = cell
			}
		}
	}
	return t
}

// want is the cell of two places.
func (t IsolationTable) want(from, to place, published bool) (reached, known bool) {
	switch cell := t.cells[[2]string{from.kind, to.kind}]; cell {
	case "yes":
		return true, true
	case "published":
		return published, true
	case "address":
		return !published, true
	case "no":
		return false, true
	}
	return false, false
}
