package lab

import "os"

func mkdirs(names ...string) error {
	for _, name := range names {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	return nil
}
