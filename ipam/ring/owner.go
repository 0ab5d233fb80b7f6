package ring

// Owner names a host: 16 lower-case hexadecimal digits.
type Owner string
