package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// webMain serves the client's address, over HTTP, UDP and SCTP, for as long as the box
// lives.
func webMain(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	go webUDP(p)
	go func() {
		if err := webSCTP(listen); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
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

func webUDP(p net.PacketConn) {
	for {
		_, from, err := p.ReadFrom(make([]byte, 1500))
		if err == nil {
			host, _, _ := net.SplitHostPort(from.String())
			_, _ = p.WriteTo([]byte(host+"\n"), from)
		}
	}
}

// fetchMain prints what an URL answers; of "udp://HOST:PORT", what a datagram to it is
// answered with; of "sctp://HOST:PORT", what a megabyte is.
func fetchMain(url string) error {
	if addr, sctp := strings.CutPrefix(url, "sctp://"); sctp {
		return fetchSCTP(addr)
	}
	if addr, udp := strings.CutPrefix(url, "udp://"); udp {
		return fetchUDP(addr)
	}
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

// fetchUDP asks again and again, for 3 s.
func fetchUDP(addr string) error {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 1500)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		_, _ = conn.Write([]byte("?\n")) // an error is of the datagram before
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, rerr := conn.Read(buf)
		if rerr == nil {
			_, err := os.Stdout.Write(buf[:n])
			return err
		}
		if err = rerr; !errors.Is(rerr, os.ErrDeadlineExceeded) {
			time.Sleep(100 * time.Millisecond) // refused: nobody is there yet
		}
	}
	return fmt.Errorf("udp://%s: %w", addr, err)
}

var fetchEnv = []string{roleVar + "=" + roleFetch}
