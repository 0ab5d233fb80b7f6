package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// webMain serves the client's address, over HTTP, UDP and SCTP, for as long as the box
// lives, at one address or several.
func webMain(listen ...string) error {
	for _, other := range listen[1:] {
		go func() {
			fmt.Fprintln(os.Stderr, webAt(other))
			os.Exit(1)
		}()
	}
	return webAt(listen[0])
}

func webAt(listen string) error {
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
	for question := make([]byte, 1<<16); ; {
		n, from, err := p.ReadFrom(question)
		if err == nil {
			host, _, _ := net.SplitHostPort(from.String())
			answer := []byte(host + "\n")
			// A long question has an answer as long.
			if n > 100 {
				answer = append(answer, make([]byte, n-len(answer))...)
			}
			_, _ = p.WriteTo(answer, from)
		}
	}
}

// fetchMain prints what an URL answers; of "udp://HOST:PORT", what a datagram to it is
// answered with, and of "udp://HOST:PORT/3000" of so many bytes, as are those of the answer; of "sctp://HOST:PORT", what a megabyte is.
func fetchMain(url string) error { return fetch(context.Background(), 0, url, os.Stdout) }

// starting is how long a server may refuse connections: Docker says that a container runs before its program does.
const starting = 2 * time.Second

func fetch(ctx context.Context, pid int, url string, out io.Writer) error {
	if addr, sctp := strings.CutPrefix(url, "sctp://"); sctp {
		return fetchSCTP(addr)
	}
	if addr, udp := strings.CutPrefix(url, "udp://"); udp {
		return fetchUDP(pid, addr, out)
	}
	// Where it connects is decided on a thread of the namespace: to an address, not to a name.
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return inNetns(pid, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) })
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	for end := time.Now().Add(starting); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(end); resp, err = client.Do(req) {
		time.Sleep(starting / 20)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}

// fetchUDP asks again and again, for 3 s.
func fetchUDP(pid int, addr string, out io.Writer) error {
	question := []byte("?\n")
	addr, size, long := strings.Cut(addr, "/")
	if long {
		n, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("udp://%s/%s: %w", addr, size, err)
		}
		question = make([]byte, n)
	}
	conn, err := inNetns(pid, func() (net.Conn, error) { return net.Dial("udp", addr) })
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		_, _ = conn.Write(question) // an error is of the datagram before
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, rerr := conn.Read(buf)
		if rerr == nil {
			if long && n != len(question) {
				return fmt.Errorf("udp://%s: %d bytes are answered with %d", addr, len(question), n)
			}
			_, err := out.Write(bytes.TrimRight(buf[:n], "\x00"))
			return err
		}
		if err = rerr; !errors.Is(rerr, os.ErrDeadlineExceeded) {
			time.Sleep(100 * time.Millisecond) // refused: nobody is there yet
		}
	}
	return fmt.Errorf("udp://%s: %w", addr, err)
}

var fetchEnv = []string{roleVar + "=" + roleFetch}
