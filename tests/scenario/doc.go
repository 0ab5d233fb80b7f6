// Package scenario runs the txtar scripts of tests/scenarios against a lab. The
// commands that a script has, beside those of testscript (stdout, cmp, env, ...),
// are listed with examples in tests/README.md.
package scenario
