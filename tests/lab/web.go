package lab

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// webMain serves the client's address, for as long as the box lives.
func webMain(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096))
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s\n", len(host)+1, host)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
	}
}

// fetchMain prints what an URL answers.
func fetchMain(url string) error {
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

var fetchEnv = []string{roleVar + "=" + roleFetch}
