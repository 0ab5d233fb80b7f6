package policy

import (
	"strings"
	"testing"
)

// TestExpression: what kubectl would take is taken, in one spelling, and what it would not is an error that says how.
func TestExpression(t *testing.T) {
	for text, want := range map[string]string{
		"role=mail": "role=mail", "role == mail": "role=mail", "role!=mail": "role!=mail", " role ": "role", "!role": "!role", "! role": "!role",
		"role in (smtp, mail,smtp)": "role in (mail,smtp)", "role in (mail)": "role=mail", "role notin (mail,smtp)": "role notin (mail,smtp)",
		"role notin (mail)": "role!=mail", "role=": "role=", "a.b/c-d=e=f": "a.b/c-d=e=f",
	} {
		r, err := ParseExpression(text)
		if got := r.Expression(); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
		if again, err := ParseExpression(r.Expression()); err != nil || again.Expression() != r.Expression() {
			t.Errorf("%q: read again %v, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "=mail", "!", "!=mail", "role mail", "role in mail", "role in (a", "role=a,tier=b", "role=(a)", strings.Repeat("x", 400)} {
		if r, err := ParseExpression(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// TestSelects: of who has labels that are not known it is said whether they could change anything.
func TestSelects(t *testing.T) {
	for _, c := range []struct {
		expression      string
		all             bool
		selected, known bool
	}{
		{"role=mail", true, true, true},
		{"role=web", true, false, true},
		{"role=mail", false, true, true},
		{"tier", true, false, true},
		{"tier", false, false, false},
		{"!tier", false, false, false},
		{"!tier", true, true, true},
	} {
		r, err := ParseExpression(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		if selected, known := (Selector{r}).Selects(map[string]string{"role": "mail"}, c.all); selected != c.selected || known != c.known {
			t.Errorf("%+v: %v, %v", c, selected, known)
		}
	}
}
